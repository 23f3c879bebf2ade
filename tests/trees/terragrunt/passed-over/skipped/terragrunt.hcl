skip = true
terraform { source = "tfr:///example/x/aws?version=1.0.0" }
