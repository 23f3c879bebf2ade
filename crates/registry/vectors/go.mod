module lockkeeper.invalid/vectors

go 1.26.0

require (
	github.com/hashicorp/terraform-registry-address v0.5.1
	golang.org/x/mod v0.43.0
)

require (
	github.com/hashicorp/terraform-svchost v0.2.1 // indirect
	golang.org/x/net v0.62.0 // indirect
	golang.org/x/text v0.43.0 // indirect
)
