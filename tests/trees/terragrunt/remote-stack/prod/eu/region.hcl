locals {
  name = "eu"
}
