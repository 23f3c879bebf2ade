terraform { source = "../../../../x" }
