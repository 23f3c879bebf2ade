environment = "staging"
release     = "2.7.1"
