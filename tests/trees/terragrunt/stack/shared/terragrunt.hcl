terraform { source = "tfr:///example/shared/aws?version=1.0.0" }
