output "image" {
  description = "What is running."
  value       = terraform_data.service.input.image
}
