terraform { source = "tfr:///example/boards/aws?version=1.0.0" }
