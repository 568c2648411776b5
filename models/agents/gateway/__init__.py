"""Agent programs that call the policy over OpenAI's protocol, and the record of their calls."""
