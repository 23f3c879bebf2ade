locals {
  name = "stage"
}
