output "subnets" {
  description = "Names of the subnets that services can run in."
  value       = [for subnet in terraform_data.subnet : subnet.input.name]
}
