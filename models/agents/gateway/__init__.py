"""Agent programs that ask the policy over OpenAI's protocol, and what is recorded of their calls."""
