variable "environment" {
  description = "Where the shop runs: staging or production."
  type        = string
}

variable "release" {
  description = "Tag of the image."
  type        = string
}

variable "replicas" {
  description = "How many instances answer customers."
  type        = number
  default     = 2

  validation {
    condition     = var.replicas > 0
    error_message = "Somebody has to answer the customers."
  }
}
