"""Agent programs as third parties write them with OpenAI's client, and a policy that can follow them."""
