# Names inside of the network.

resource "terraform_data" "dns_zone" {
  input = {
    name = "${var.environment}.shop.internal"
    vpc  = local.name
  }
}
