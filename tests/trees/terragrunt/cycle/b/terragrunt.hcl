terraform { source = "tfr:///example/b/aws?version=1.0.0" }

dependency "c" { config_path = "../c" }
