# A subnet for the services of an environment.

variable "environment" {
  description = "Where the services run: staging or production."
  type        = string
}

output "subnet" {
  description = "Subnet of the services."
  value       = "public-${var.environment}"
}
