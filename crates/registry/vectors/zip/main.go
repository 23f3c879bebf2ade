// Prints which files golang.org/x/mod/zip puts into packages, and which packages it accepts.
//
// Each tree becomes a commit in a repository of git, and is read as the go command does, without export attributes.
//
// Run it in the folder above: go run ./zip > zip.txt
// With -generated, it does so for many small trees that follow from their numbers: go run ./zip -generated > generated.txt
// With names of files, it checks those packages instead and prints their checksums: go run ./zip a.zip b.zip
package main

import (
	"archive/zip"
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"

	"golang.org/x/mod/module"
	"golang.org/x/mod/sumdb/dirhash"
	modzip "golang.org/x/mod/zip"
)

var mod = module.Version{Path: "example.com/m", Version: "v1.2.3"}

type entry struct {
	kind    byte // 'f' file, 'x' executable file, 'l' link, 's' submodule
	path    string
	content string
}

type tree struct {
	name, dir string
	entries   []entry
}

func files(paths ...string) []entry {
	var list []entry
	for _, path := range paths {
		list = append(list, entry{'f', path, path + "\n"})
	}
	return list
}

func with(list []entry, more ...entry) []entry { return append(list[:len(list):len(list)], more...) }

func goMod(path, goLine string) entry {
	return entry{'f', path, "module example.com/m\n" + goLine}
}

var vendored = []string{
	"a.go", "vendor/modules.txt", "vendor/x.go", "vendor/x/x.go", "vendor/x/y/y.go", "pkg/vendor/vendor.go",
	"pkg/vendor/x/x.go", "pkg/vendor/modules.txt", "a/b/c/vendor/v.go", "a/b/c/vendor/w/w.go", "vendored/x/x.go",
	"x/vendor/y/vendor/z.go", "longer/name/vendor/v.go", "v/vendor/v.go", "notvendor/v/v.go",
}

var trees = func() []tree {
	list := []tree{
		{"plain", "", files("a.go", "b/b.go", "README.md", ".gitignore", ".github/x.yml")},
		{"without go.mod", "", files("a.go")},
		{"executable", "", []entry{{'x', "run.sh", "#!/bin/sh\n"}, {'f', "empty", ""}}},
		{"nested modules", "", with(files("a.go", "sub/x.go", "sub/deep/y.go", "sub2/x.go", "b/c/d.go"),
			goMod("go.mod", ""), goMod("sub/go.mod", ""), goMod("b/c/go.mod", ""))},
		{"nested module in capitals", "", with(files("a.go", "sub/x.go"), goMod("sub/GO.MOD", ""))},
		{"go.mod as a link", "", with(files("a.go", "sub/x.go"),
			entry{'l', "go.mod", "other"}, entry{'l', "sub/go.mod", "../go.mod"})},
		{"go.mod as a folder", "", files("a.go", "sub/go.mod/x.go")},
		{"go.mod in capitals", "", with(files("a.go"), goMod("Go.mod", ""))},
		{"both go.mod", "", with(files("a.go"), goMod("Go.mod", ""), goMod("go.mod", ""))},
		{"links", "", with(files("a.go"), entry{'l', "link", "a.go"}, entry{'l', "out", "/etc/passwd"},
			entry{'l', "LICENSE", "a.go"})},
		{"submodules", "", with(files("a.go"), entry{'s', "third", ""}, entry{'s', "LICENSE", ""})},
		{"case of files", "", files("a.go", "A.go")},
		{"case of folders", "", files("x/a.go", "X/b.go")},
		{"case of a link", "", with(files("readme"), entry{'l', "README", "readme"})},
		{"case with Unicode", "", files("straße", "STRAẞE", "k", "\u212a", "ς", "σ", "Σ")},
		{"Unicode", "", files("größe.go", "日本語/x.go", "δ", "e\u0301")},
		{"no letters", "", files("a.go", "☃.md", "a\u00a0b", "½")},
		{"new letters", "", files("\u1c89", "\U0001e5d0")},
		{"not UTF-8", "", files("a\xff.go")},
		{"punctuation", "", files("!#$%&()+,-.=@[]^_{}~ ", "a b", " ", "-a")},
		{"bad punctuation", "", files("a\"", "b'", "c*", "d<", "e>", "f?", "g`", "h|", "i\\", "j:", "k;", "l\n", "m\t")},
		{"dots", "", files("a.", "...", "b./c", ".d", "..e", "f..g")},
		{"reserved by Windows", "", files("con", "x/NUL.txt", "com1", "com0", "lpt9.x", "aux2", "console", "PRN/a")},
		{"short names of Windows", "", files("a~1", "b~1.go")},
		{"folders of version control", "", files("a.go", ".hg/x", "x/.svn/y", ".hg_archival.txt", "x/.hg_archival.txt")},
		{"export attributes", "", with(files("a.go", "secret.go"), entry{'f', ".gitattributes",
			"secret.go export-ignore\nsubst export-subst\n"}, entry{'f', "subst", "$Format:%H$\n"})},
		{"bad files of another module", "", with(files("a.go", "sub/a:b"), goMod("sub/go.mod", ""))},
		{"a file called vendor", "", files("vendor", "a/vendor", "b/vendor/vendor")},
		{"bad files in vendor", "", files("a.go", "vendor/x/a:b")},
		{"directory", "sub", with(files("LICENSE", "a.go", "sub/x.go", "sub2/y.go", "sub/deep/z.go"), goMod("sub/go.mod", ""))},
		{"directory with a license", "sub", files("LICENSE", "sub/LICENSE", "sub/x.go")},
		{"directory with a link as license", "sub", with(files("LICENSE", "sub/x.go"), entry{'l', "sub/LICENSE", "../LICENSE"})},
		{"license as a link", "sub", with(files("COPYING", "sub/x.go"), entry{'l', "LICENSE", "COPYING"})},
		{"license as a folder", "sub", files("LICENSE/MIT", "sub/x.go")},
		{"license as a submodule", "sub", with(files("sub/x.go"), entry{'s', "LICENSE", ""})},
		{"license in another case", "sub", files("LICENSE", "sub/license", "sub/x.go")},
		{"deep directory", "a/b", with(files("LICENSE", "a/LICENSE", "a/x.go", "a/b/y.go", "a/bc/z.go"), goMod("a/b/go.mod", ""))},
		{"directory of a module in vendor", "vendor/x", with(files("vendor/x/x.go", "vendor/x/vendor/y/y.go"), goMod("vendor/x/go.mod", ""))},
		{"file and folder in another case", "", files("a/b", "A")},
	}
	for _, line := range []string{
		"", "go 1.23\n", "go 1.24\n", "go 1.24.0\n", "go 1.24rc1\n", "go 1.24.1rc1\n", "go 1.25\n", "go 1.9\n",
		"go 1.24.x\n", "go v1.24\n", "go v1.24.x\n", "go 2.0\n", "go \"1.24\"\n", "go 1.24 // comment\n", "go 1.24\ngo 1.24\n",
		"go (\n\t1.24\n)\n", "go 1.24\nrequire (\n", "go 1.24\nreplace x => y\n", "go 1.24 /* x */\n", "go 1.024\n",
		"go 1.24\nrequire example.com/x v1.0.0\n", "go 1.24\nrequire example.com/x\n", "go 1.24\nmodule b\n",
		"go 1.24\nunknown (\n\ta b c\n)\n", "go 1.24\r\n", "toolchain go1.25\n", "go 1.24\ntool x\n", "go 1.24\n)\n",
		"go 1.24\nrequire ()\n", "go 1.24\nrequire ( ) x\n", "go 1.24rc01\n", "go 1.24.0-x\n", "go 1.24\n\"x\n", "go 1.24\nrequire \"x.y/z\" v1\n", "go 1.24\nrequire `x.y/z` v1.0.0\n", "go 1.24\nrequire x.y/z 1.0.0\n",
		"go 1.24\nignore ./x\n", "go 1.24\nignore a b\n", "go 1.24\nretract x\n", "go 1.24\n`x`y\n",
	} {
		list = append(list, tree{fmt.Sprintf("vendor with %q", line), "", with(files(vendored...), goMod("go.mod", line))})
	}
	return list
}()

type zipped struct {
	name    string
	entries [][2]string
}

var zips = []zipped{
	{"plain", [][2]string{{"a.go", "package a\n"}, {"b/b.go", ""}, {"go.mod", "module example.com/m\n"}}},
	{"empty", nil},
	{"folders", [][2]string{{"", ""}, {"b/", ""}, {"b/b.go", "x"}}},
	{"parent", [][2]string{{"../a", ""}}},
	{"parent inside", [][2]string{{"a/../b", ""}}},
	{"absolute", [][2]string{{"/etc/passwd", ""}}},
	{"double slash", [][2]string{{"a//b", ""}}},
	{"case", [][2]string{{"a.go", ""}, {"A.go", ""}}},
	{"case of folders", [][2]string{{"x/a.go", ""}, {"X/", ""}}},
	{"twice", [][2]string{{"a.go", "1"}, {"a.go", "2"}}},
	{"file and folder", [][2]string{{"a", ""}, {"a/b", ""}}},
	{"go.mod below", [][2]string{{"sub/go.mod", ""}}},
	{"go.mod in capitals", [][2]string{{"GO.MOD", ""}}},
	{"go.mod below in capitals", [][2]string{{"sub/Go.Mod", ""}}},
	{"vendor", [][2]string{{"vendor/x/x.go", ""}, {"vendor/modules.txt", ""}}},
	{"bad names", [][2]string{{"a:b", ""}, {"nul", ""}, {"x.", ""}, {"☃", ""}}},
	{"good names", [][2]string{{"größe", ""}, {".hg_archival.txt", ""}, {"LICENSE", "x"}}},
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// escape writes a text as one word.
func escape(text string) string {
	var b strings.Builder
	b.WriteByte('=')
	for _, c := range []byte(text) {
		if c == '%' || c <= ' ' || c > '~' {
			fmt.Fprintf(&b, "%%%02x", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

func git(dir, stdin string, args ...string) {
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Stdin = strings.NewReader(stdin)
	if out, err := cmd.CombinedOutput(); err != nil {
		panic(fmt.Sprintf("git %v: %v\n%s", args, err, out))
	}
}

// commit writes a tree into a new repository.
func commit(t tree) string {
	dir := must(os.MkdirTemp("", "vectors"))
	git(dir, "", "init", "-q", "-b", "main", ".")
	var b strings.Builder
	b.WriteString("commit refs/heads/main\ncommitter a <a@b> 1700000000 +0000\ndata 1\nx\n")
	for _, e := range t.entries {
		var path strings.Builder
		for _, c := range []byte(e.path) {
			fmt.Fprintf(&path, "\\%03o", c)
		}
		switch e.kind {
		case 's':
			fmt.Fprintf(&b, "M 160000 %040d \"%s\"\n", 1, path.String())
		default:
			mode := map[byte]string{'f': "100644", 'x': "100755", 'l': "120000"}[e.kind]
			fmt.Fprintf(&b, "M %s inline \"%s\"\ndata %d\n%s\n", mode, path.String(), len(e.content), e.content)
		}
	}
	git(dir, b.String(), "fast-import", "--quiet")
	// The go command does the same.
	must(0, os.MkdirAll(filepath.Join(dir, ".git/info"), 0o755))
	must(0, os.WriteFile(filepath.Join(dir, ".git/info/attributes"), []byte("\n* -export-subst -export-ignore\n"), 0o644))
	return dir
}

// class names the rule behind an error.
func class(err error) string {
	text := err.Error()
	for _, rule := range [][2]string{
		{"case-insensitive file name collision", "case"},
		{"is both a file and a directory", "both"},
		{"multiple entries for file", "twice"},
		{"malformed file path", "name"},
		{"file path is not clean", "name"},
		{"go.mod files must have lowercase names", "gomodcase"},
		{"go.mod file not in module root directory", "gomodplace"},
	} {
		if strings.Contains(text, rule[0]) {
			return rule[1]
		}
	}
	panic("no class for " + text)
}

func faults(err error) []string {
	var list modzip.FileErrorList
	if !errors.As(err, &list) {
		panic(err)
	}
	var lines []string
	for _, fault := range list {
		path := strings.TrimPrefix(fault.Path, mod.Path+"@"+mod.Version+"/")
		lines = append(lines, fmt.Sprintln("invalid", escape(path), class(fault.Err)))
	}
	return lines
}

func printFaults(err error) {
	for _, line := range faults(err) {
		fmt.Print(line)
	}
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == "-generated" {
		printGenerated()
		return
	}
	if len(os.Args) > 1 {
		for _, file := range os.Args[1:] {
			checked, err := modzip.CheckZip(mod, file)
			fmt.Println(must(dirhash.HashZip(file, dirhash.Hash1)), len(checked.Valid), err)
			must(0, modzip.Unzip(must(os.MkdirTemp("", "unzip")), mod, file))
		}
		return
	}
	fmt.Println("# Made by `go run ./zip > zip.txt` in this folder.")
	fmt.Println("# tree NAME DIRECTORY, then its entries (f file, x executable, l link, s submodule), then what the package has.")
	for _, t := range trees {
		fmt.Println("tree", escape(t.name), escape(t.dir))
		for _, e := range t.entries {
			fmt.Printf("entry %c %s %s\n", e.kind, escape(e.path), escape(e.content))
		}
		dir := commit(t)
		var b bytes.Buffer
		err := modzip.CreateFromVCS(&b, mod, dir, "main", t.dir)
		if err != nil {
			printFaults(err)
		} else {
			printZip(b.Bytes())
		}
		must(0, os.RemoveAll(dir))
	}
	fmt.Println("# zip NAME BASE64, then what Go says about the package.")
	for _, z := range zips {
		var b bytes.Buffer
		w := zip.NewWriter(&b)
		for _, e := range z.entries {
			f := must(w.Create(mod.Path + "@" + mod.Version + "/" + e[0]))
			must(f.Write([]byte(e[1])))
		}
		must(0, w.Close())
		fmt.Println("zip", escape(z.name), base64.StdEncoding.EncodeToString(b.Bytes()))
		file := filepath.Join(must(os.MkdirTemp("", "vectors")), "m.zip")
		must(0, os.WriteFile(file, b.Bytes(), 0o644))
		if _, err := modzip.CheckZip(mod, file); err != nil {
			printFaults(err)
		} else {
			printZip(b.Bytes())
		}
		must(0, os.RemoveAll(filepath.Dir(file)))
	}
}

// printZip prints the files of a package and its checksum.
func printZip(data []byte) {
	r := must(zip.NewReader(bytes.NewReader(data), int64(len(data))))
	var names []string
	for _, f := range r.File {
		names = append(names, strings.TrimPrefix(f.Name, mod.Path+"@"+mod.Version+"/"))
	}
	sort.Strings(names)
	for _, name := range names {
		fmt.Println("valid", escape(name))
	}
	fmt.Println(hashOf(data))
}

// hashOf returns the checksum of a package.
func hashOf(data []byte) string {
	file := filepath.Join(must(os.MkdirTemp("", "vectors")), "m.zip")
	must(0, os.WriteFile(file, data, 0o644))
	defer os.RemoveAll(filepath.Dir(file))
	return must(dirhash.HashZip(file, dirhash.Hash1))
}
