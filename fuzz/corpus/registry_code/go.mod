module example.com/app/v2 // Deprecated: use v3

go 1.24

require (
	example.com/net v1.0.0
	example.org/x v0.0.0-20240101000000-abcdefabcdef // indirect
	"github.com/Azure/m" v2.0.0+incompatible
)

require example.com/one/v3 v3.1.0-rc.1

exclude example.com/net v0.9.0
replace example.com/net => ../net
retract [v2.0.0, v2.0.3]
