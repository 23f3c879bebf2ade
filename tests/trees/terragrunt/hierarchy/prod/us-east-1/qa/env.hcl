locals { environment = "prod" }
