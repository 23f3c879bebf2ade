environment = "staging"
cidr        = "10.20.0.0/16"

subnets = {
  web      = "10.20.1.0/24"
  database = "10.20.2.0/24"
}
