// Prints what golang.org/x/mod says of paths, versions and their escaping, and what
// github.com/hashicorp/terraform-registry-address says of names of modules.
//
// Run it in the folder above: go run ./names > names.txt
package main

import (
	"bufio"
	"fmt"
	"math/rand"
	"os"
	"runtime/debug"
	"strings"

	regaddr "github.com/hashicorp/terraform-registry-address"
	"golang.org/x/mod/module"
	"golang.org/x/mod/semver"
)

var paths = strings.Fields(`
	example.com example.com/ /example.com example.com//m example.com/m example.com/m/v2 example.com/m/v1 example.com/m/v0
	example.com/m/v02 example.com/m/v10 example.com/m/v2.0 example.com/m/v example.com/v2 example.com/v2/m v2 v2.example.com
	example.com/m/v99999999999999999999999 example.com/mv2 example.com/m.v2 example.com/m/V2 example.com/m2 example.com/m.2
	github.com/Azure/azure-sdk-for-go github.com/BurntSushi/toml GitHub.com/a/b github.com/a_b/~c github.com/a~1 github.com/a~1.b
	github.com/a~b1 github.com/~1 github.com/a~ github.com/a.b~1 localhost localhost/m -example.com/m example-.com/-m
	example.com/.m example.com/m. example.com/m..n example.com/... example.com/. example.com/.. .example.com/m example.com./m
	example.com/con example.com/CON.txt example.com/com1 example.com/com10 example.com/lpt0 example.com/Nul example.com/aux.b.c
	example.com/a.con example.com/conx example.com/prn/m example.com/a+b example.com/a!b example.com/a@b example.com/a%20b
	example.com/ä example.com/a=b example.com/a:b example.com/a\b example.com/a*b 1.2 1.2.3.4/m a.b/c/d/e/f/g example.com/v2.
	exa_mple.com/m exa~mple.com/m example.com:8080/m
	gopkg.in gopkg.in/ gopkg.in/yaml gopkg.in/yaml.v1 gopkg.in/yaml.v0 gopkg.in/yaml.v00 gopkg.in/yaml.v01 gopkg.in/yaml.v2
	gopkg.in/yaml.v2/v3 gopkg.in/yaml/v2 gopkg.in/yaml.v2-unstable gopkg.in/yaml.v-unstable gopkg.in/yaml-unstable
	gopkg.in/check.v1 gopkg.in/user/pkg.v3 gopkg.in/.v1 gopkg.in/v1 gopkg.in/a.v1.v2 gopkg.in/A.v1 gopkg.in/yaml.v1/sub
	gopkg.in/yaml.v1-unstable gopkg.in/yaml.v0-unstable gopkg.in/yaml.v1-unstable-unstable gopkg.in/yaml.V1 gopkg.inx/yaml
`)

var versions = strings.Fields(`
	v0.0.0 v0.0.1 v0.1.0 v1.0.0 v1.0.1 v1.2.3 v1.2.10 v1.10.0 v2.0.0 v2.3.4 v3.0.0 v10.0.0 v0 v1 v1.2 v v1. v1.2. v1.2.3. V1.0.0 1.0.0
	vv1.0.0 v01.0.0 v1.00.0 v1.0.01 v-1.0.0 v1.0.0- v1.0.0-. v1.0.0-a. v1.0.0-a..b v1.0.0-0 v1.0.0-00 v1.0.0-01 v1.0.0-0a v1.0.0-1
	v1.0.0-2 v1.0.0-10 v1.0.0-9999999999999999999999999 v1.0.0-a v1.0.0-A v1.0.0-alpha v1.0.0-alpha.1 v1.0.0-alpha.beta v1.0.0-beta
	v1.0.0-beta.2 v1.0.0-beta.11 v1.0.0-rc.1 v1.0.0-rc.1.0 v1.0.0-RC1 v1.0.0-- v1.0.0--- v1.0.0-a-b v1.0.0-a_b v1.0.0-ä
	v1.0.0+ v1.0.0+a v1.0.0+a.b v1.0.0+incompatible v2.0.0+incompatible v2.0.0-rc.1+incompatible v2.0.0+incompatible.1 v2.0.0+Incompatible
	v3.1.0+incompatible v3.1.0-rc+meta latest master main a/b a!b V2 Release-1.0 .hidden trailing. .. con nul.v1 a~1
	v0.0.0-20191109021931-daa7c04131f5 v0.0.0-20191109021931-daa7c04131f v0.0.0-20191309021931-daa7c04131f5
	v1.0.0-20191109021931-daa7c04131f5 v2.0.0-20191109021931-daa7c04131f5 v1.2.4-0.20191109021931-daa7c04131f5
	v1.2.0-0.20191109021931-daa7c04131f5 v1.10.10-0.20191109021931-daa7c04131f5
	v1.2.3-pre.0.20191109021931-daa7c04131f5 v1.2.3-rc.1.0.20191109021931-daa7c04131f5 v1.2.3-20191109021931-daa7c04131f5
	v2.3.5-0.20191109021931-daa7c04131f5+incompatible v2.3.4-pre.0.20191109021931-daa7c04131f5+incompatible
	v2.0.0-20191109021931-daa7c04131f5+incompatible v0.0.0-0.20191109021931-daa7c04131f5 v1.0.0-0.20191109021931-daa7c04131f5
	v0.0.0-2019110902193-daa7c04131f5 v0.0.0-20191109021931-DAA7 v0.0.0-20191109021931-a_b v0.0.0-20191109021931-a-b
	v0.0.0-0.20190101000000-abcdef123456 v1.2.3-0.20190101000000-a.b v1.2.3-x-0.20190101000000-ab
	v1.2.3-20191109021931.0.20191109021931-ab12 v1.2.3-rc.0.20191109021931-20191109021931 v1.2.4-0.20191109021931-20191109021931
	v0.0.0-20190230000000-abcdef123456
	v0.0.0-20200229000000-abcdef123456 v0.0.0-20190101240000-abcdef123456 v0.0.0-20190101235960-abcdef123456
`)

var escaped = strings.Fields(`
	github.com/!azure/azure-sdk-for-go github.com/Azure/x github.com/!Azure github.com/!!azure github.com/azure! !github.com/a
	github.com/!1 github.com/!- github.com/a!/b github.com/!ä v1.0.0-!r!c1 v1.0.0-RC1 v1.0.0-!r! ! !a !!a a!b v1.0.0-r! main !main .a
`)

var modules = append(strings.Fields(`
	acme/vpc/aws Acme-Inc/VPC_x/aws2 a/b/c 1/2/3 -a/b/c a-/b/c a/b-/c a/_b/c a_b/c-d/e a--b/c__d/e a/b/C a/b/c-d a/b/c_d a/b/ /b/c a.b/c/d
	a/b.c/d a/b/c.d ä/b/c a/ä/c a/b/ä terraform-aws-modules/vpc/aws hashicorp/consul/aws github.com/a/b a/b/c?ref=1 ./a/b ../a/b
`), strings.Repeat("a", 64)+"/"+strings.Repeat("b", 64)+"/"+strings.Repeat("c", 64), strings.Repeat("a", 65)+"/b/c",
	"a/"+strings.Repeat("b", 65)+"/c", "a/b/"+strings.Repeat("c", 65))

// check says whether the go command takes a version of a path: module.Check, canonical, and no "+incompatible" where
// the major version agrees with the path (modfetch refuses that).
func check(path, version string) bool {
	if module.Check(path, version) != nil || module.CanonicalVersion(version) != version {
		return false
	}
	base, incompatible := strings.CutSuffix(version, "+incompatible")
	_, major, _ := module.SplitPathVersion(path)
	return !incompatible || !module.MatchPathMajor(base, major)
}

func or(text string, err error) string {
	if err != nil {
		return "!"
	}
	return text
}

func main() {
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	using := map[string]string{}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, dep := range info.Deps {
			using[dep.Path] = dep.Version
		}
	}
	fmt.Fprintf(out, "# Made by `go run ./names > names.txt` in this folder, with golang.org/x/mod %s and terraform-registry-address %s.\n",
		using["golang.org/x/mod"], using["github.com/hashicorp/terraform-registry-address"])
	fmt.Fprintln(out, "# Fields are separated by tabs, and `!` stands for an error.")

	fmt.Fprintln(out, "# path: a text, its escaped form, its prefix, its major version")
	random := rand.New(rand.NewSource(19))
	all := paths
	const alphabet = "aAv12.-_~/!+@ é"
	for range 80 {
		path := []rune(paths[random.Intn(len(paths))])
		at := random.Intn(len(path))
		path[at] = []rune(alphabet)[random.Intn(len([]rune(alphabet)))]
		all = append(all, string(path))
	}
	var valid []string
	for _, path := range all {
		escape, err := module.EscapePath(path)
		prefix, major, _ := module.SplitPathVersion(path)
		if err != nil {
			fmt.Fprintf(out, "path\t%s\t!\n", path)
			continue
		}
		fmt.Fprintf(out, "path\t%s\t%s\t%s\t%s\n", path, escape, prefix, major)
		valid = append(valid, path)
	}

	fmt.Fprintln(out, "# version: a text, its escaped form; canonical: a text; pseudo: a text, base, time, revision")
	var canonical []string
	for _, v := range versions {
		fmt.Fprintf(out, "version\t%s\t%s\n", v, or(module.EscapeVersion(v)))
		if !semver.IsValid(v) || module.CanonicalVersion(v) != v {
			fmt.Fprintf(out, "canonical\t%s\t!\n", v)
			continue
		}
		fmt.Fprintf(out, "canonical\t%s\t%s\n", v, v)
		canonical = append(canonical, v)
		if !module.IsPseudoVersion(v) {
			fmt.Fprintf(out, "pseudo\t%s\t!\n", v)
			continue
		}
		rev, _ := module.PseudoVersionRev(v)
		time, err := module.PseudoVersionTime(v)
		fmt.Fprintf(out, "pseudo\t%s\t%s\t%s\t%s\n", v, or(module.PseudoVersionBase(v)),
			or(time.Format("2006-01-02T15:04:05Z"), err), rev)
	}

	fmt.Fprintln(out, "# unescape: a text, the path, the version")
	for _, text := range escaped {
		fmt.Fprintf(out, "unescape\t%s\t%s\t%s\n", text, or(module.UnescapePath(text)), or(module.UnescapeVersion(text)))
	}

	fmt.Fprintln(out, "# order: two versions and how they compare")
	for range 200 {
		v, w := canonical[random.Intn(len(canonical))], canonical[random.Intn(len(canonical))]
		fmt.Fprintf(out, "order\t%s\t%s\t%d\n", v, w, semver.Compare(v, w))
	}

	fmt.Fprintln(out, "# module: a text of three parts, its namespace, name and system")
	all = modules
	for range 80 {
		name := []rune(modules[random.Intn(len(modules))])
		if at := random.Intn(len(name)); name[at] != '/' {
			name[at] = []rune(alphabet)[random.Intn(len([]rune(alphabet)))]
			all = append(all, string(name))
		}
	}
	for _, text := range all {
		// Terraform also takes a host before the three parts and a directory after them.
		if strings.Count(text, "/") != 2 || strings.Contains(text, "//") {
			continue
		}
		name, err := regaddr.ParseModuleSource(text)
		if err != nil {
			fmt.Fprintf(out, "module\t%s\t!\n", text)
			continue
		}
		fmt.Fprintf(out, "module\t%s\t%s\t%s\t%s\n", text, name.Package.Namespace, name.Package.Name, name.Package.TargetSystem)
	}

	fmt.Fprintln(out, "# check: a path, a version, and whether they agree")
	for _, path := range []string{"example.com/m", "example.com/m/v2", "example.com/m/v10", "gopkg.in/yaml.v0", "gopkg.in/yaml.v1",
		"gopkg.in/yaml.v1-unstable", "gopkg.in/yaml.v2", "gopkg.in/yaml.v2-unstable"} {
		for _, v := range canonical {
			if v[1] == '1' && strings.Contains(v, "-") && !module.IsPseudoVersion(v) {
				continue // Pre-releases of one major version are all alike.
			}
			fmt.Fprintf(out, "check\t%s\t%s\t%v\n", path, v, check(path, v))
		}
	}
}
