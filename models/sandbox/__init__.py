"""The only place where code that a model wrote is run: under the layers of this machine, or in containers."""
