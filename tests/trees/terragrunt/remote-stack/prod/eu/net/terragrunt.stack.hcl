unit "vpc" {
  source = "git::https://git.example.com/catalog.git//units/vpc?ref=v1"
  path   = "vpc"
}
