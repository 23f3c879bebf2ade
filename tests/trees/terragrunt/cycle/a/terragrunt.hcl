terraform { source = "tfr:///example/a/aws?version=1.0.0" }

dependency "b" { config_path = "../b" }
