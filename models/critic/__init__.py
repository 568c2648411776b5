"""Value models: what a completion is expected to be worth from each of its tokens on."""
