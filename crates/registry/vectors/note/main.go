// Prints keys and notes of golang.org/x/mod/sumdb/note. Ed25519 is deterministic, so fixed seeds give fixed notes.
//
// Run it in the folder above: go run ./note > note.txt
// With the name of a file, it opens the notes of that file instead: go run ./note note.txt
package main

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/note"
)

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// key makes the key pair of a seed of 32 equal bytes.
func key(name string, seed byte) (skey, vkey string) {
	skey, vkey, err := note.GenerateKey(bytes.NewReader(bytes.Repeat([]byte{seed}, 32)), name)
	if err != nil {
		panic(err)
	}
	return skey, vkey
}

func main() {
	var verifiers []note.Verifier
	var signers []note.Signer
	print := len(os.Args) < 2
	if print {
		fmt.Println("# Made by `go run ./note > note.txt` in this folder. Opened again by `go run ./note note.txt`.")
	}
	for i, name := range []string{"mods.example.com", "mods.example.com", "größe/δ", "other"} {
		skey, vkey := key(name, byte(i+1))
		signers = append(signers, must(note.NewSigner(skey)))
		verifiers = append(verifiers, must(note.NewVerifier(vkey)))
		if print {
			fmt.Printf("key %d %s %s\n", i+1, skey, vkey)
		}
	}
	if !print {
		open(os.Args[1], note.VerifierList(verifiers[:3]...))
		return
	}
	for _, text := range []string{
		"go.sum database tree\n2\nnND/nri/U0xuHUrYSy0HtMeal2vzD9V4k/BO79C+QeI=\n",
		"\n",
		"a\n\nb\n\n",
		"Unicode: ü — ☃\n— not a signature\n",
	} {
		for _, by := range [][]int{{1}, {1, 2}, {3, 4, 2}} {
			var chosen []note.Signer
			for _, i := range by {
				chosen = append(chosen, signers[i-1])
			}
			msg := must(note.Sign(&note.Note{Text: text}, chosen...))
			fmt.Printf("note %s %s\n", strings.Trim(fmt.Sprint(by), "[]"), strconv.Quote(string(msg)))
		}
	}
}

// open opens every note of a file with the first three keys.
func open(file string, known note.Verifiers) {
	for _, line := range strings.Split(string(must(os.ReadFile(file))), "\n") {
		if !strings.HasPrefix(line, "note ") {
			continue
		}
		msg := must(strconv.Unquote(line[strings.Index(line, "\""):]))
		n := must(note.Open([]byte(msg), known))
		fmt.Println(len(n.Sigs), len(n.UnverifiedSigs), strconv.Quote(n.Text))
	}
}
