"""The gate for any two models: answers from files, logs, model folders or servers, and the verdict on them."""
