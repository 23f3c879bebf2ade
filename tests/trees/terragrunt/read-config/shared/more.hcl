inputs = { tag = "x" }
