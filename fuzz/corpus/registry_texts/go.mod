// Deprecated: use another
module example.com/m // the path

go 1.24

require (
	example.com/a v1.0.0
	"example.com/b" v0.0.0-20191109021931-daa7c04131f5 // indirect
)
require example.com/c/v2 v2.3.4
exclude example.com/a v1.0.1
retract [v1.0.0, v1.0.9]
