variable "environment" {
  description = "Where the shop runs: staging or production."
  type        = string

  validation {
    condition     = contains(["staging", "production"], var.environment)
    error_message = "There is only staging and production."
  }
}

variable "cidr" {
  description = "Address range of the whole network."
  type        = string
}

variable "subnets" {
  description = "Address range of each subnet, by its name."
  type        = map(string)
}
