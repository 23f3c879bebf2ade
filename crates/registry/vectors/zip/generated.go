package main

import (
	"bytes"
	"fmt"
	"os"
	"strings"

	modzip "golang.org/x/mod/zip"
)

// Number of trees. Each follows from its number alone, and ../../src/go_zip/tests/generated.rs makes the same ones: a change
// here is one there as well.
const generatedTrees = 400

var (
	directories  = []string{"", "", "", "", "sub", "a/b", "vendor/x"}
	usualFolders = []string{"a", "b", "sub", "pkg", "vendor", "internal", "x", "v2"}
	oddFolders   = []string{"A", "Vendor", "größe", ".d", "go.mod", "con", "e.", "日本"}
	usualNames   = []string{
		"a.go", "b.go", "x_test.go", "README.md", "modules.txt", "LICENSE", "go.mod", "run.sh", ".gitignore", "vendor",
	}
	oddNames = []string{
		"A.go", "readme.md", "GO.MOD", "größe.go", "a b.txt", "a~1", "aux.go", "c;d", ".hg_archival.txt", "☃", "x.",
	}
	goLines = []string{"", "go 1.21\n", "go 1.23\n", "go 1.24\n", "go 1.25\n", "go 1.24\nrequire (\n"}
)

// lcg makes the same numbers in every language.
type lcg uint64

func (state *lcg) below(n int) int {
	*state = *state*6364136223846793005 + 1442695040888963407
	return int(uint64(*state>>33) % uint64(n))
}

func (state *lcg) pick(list []string) string { return list[state.below(len(list))] }

// rarely picks from another list, once in so many times.
func (state *lcg) rarely(times int, odd, usual []string) string {
	if state.below(times) == 0 {
		return state.pick(odd)
	}
	return state.pick(usual)
}

func (state *lcg) goMod() string { return "module example.com/m\n" + state.pick(goLines) }

func (state *lcg) content(kind byte, name string) string {
	switch {
	case kind == 's':
		return ""
	case kind == 'l':
		return "a.go"
	case strings.EqualFold(name, "go.mod"):
		return state.goMod()
	}
	size := state.below(30)
	if state.below(12) == 0 {
		size = 3000
	}
	var b strings.Builder
	for range size {
		b.WriteByte(byte('a' + state.below(26)))
	}
	return b.String()
}

// add adds an entry, unless git could not have it beside another one.
func (t *tree) add(kind byte, path, content string) {
	for _, e := range t.entries {
		if e.path == path || strings.HasPrefix(e.path, path+"/") || strings.HasPrefix(path, e.path+"/") {
			return
		}
	}
	t.entries = append(t.entries, entry{kind, path, content})
}

func generated(number int) tree {
	state := lcg(number)
	t := tree{name: fmt.Sprint(number), dir: state.pick(directories)}
	top := ""
	if t.dir != "" {
		top = t.dir + "/"
	}
	t.add('f', top+"keep.go", "package keep\n")
	if state.below(4) > 0 {
		t.add('f', top+"go.mod", state.goMod())
	}
	if state.below(3) == 0 {
		t.add('f', "LICENSE", "MIT\n")
	}
	for range 2 + state.below(12) {
		path := ""
		if state.below(4) > 0 {
			path = top
		}
		for range state.below(4) {
			path += state.rarely(40, oddFolders, usualFolders) + "/"
		}
		name := state.rarely(30, oddNames, usualNames)
		kind := "xlsfffffffffffff"[state.below(16)]
		t.add(kind, path+name, state.content(kind, name))
	}
	return t
}

func printGenerated() {
	fmt.Println("# Made by `go run ./zip -generated > generated.txt` in this folder: number of a tree, and checksum or faults.")
	for number := range generatedTrees {
		t := generated(number)
		dir := commit(t)
		var b bytes.Buffer
		if err := modzip.CreateFromVCS(&b, mod, dir, "main", t.dir); err != nil {
			fmt.Print(number, " ", strings.ReplaceAll(strings.Join(faults(err), ""), "\ninvalid", " invalid"))
		} else {
			fmt.Println(number, hashOf(b.Bytes()))
		}
		must(0, os.RemoveAll(dir))
	}
}
