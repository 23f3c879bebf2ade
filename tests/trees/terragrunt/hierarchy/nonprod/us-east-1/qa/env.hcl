locals { environment = "nonprod" }
