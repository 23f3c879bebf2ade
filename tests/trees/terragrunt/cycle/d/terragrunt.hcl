terraform { source = "tfr:///example/d/aws?version=1.0.0" }

dependency "c" { config_path = "../c" }
