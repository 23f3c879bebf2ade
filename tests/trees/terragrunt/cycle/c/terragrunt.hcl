terraform { source = "tfr:///example/c/aws?version=1.0.0" }

dependency "a" { config_path = "../a" }
