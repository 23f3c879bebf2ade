// Prints what Go takes for letters in names of files, and which characters it takes for the same in another case.
//
// Run it in the folder above: go run ./unicode > ../src/paths/unicode.txt
package main

import (
	"fmt"
	"unicode"
)

// fold is the smallest character that differs from r only in case, as strToFold in golang.org/x/mod/zip.
func fold(r rune) rune {
	for {
		r0 := r
		r = unicode.SimpleFold(r0)
		if r <= r0 {
			break
		}
	}
	if 'A' <= r && r <= 'Z' {
		r += 'a' - 'A'
	}
	return r
}

func main() {
	fmt.Println("# Made by `go run ./unicode > ../src/paths/unicode.txt` in the folder `vectors`, Unicode", unicode.Version+".")
	fmt.Println("# letter FIRST LAST, in hexadecimal digits")
	for r := rune(0); r <= unicode.MaxRune; r++ {
		first := r
		for unicode.IsLetter(r) {
			r++
		}
		if r > first {
			fmt.Printf("letter %x %x\n", first, r-1)
		}
	}
	fmt.Println("# fold FIRST LAST STEP TO: each STEP from FIRST on becomes the same number of steps from TO on")
	for r := rune(0); r <= unicode.MaxRune; r++ {
		if fold(r) == r {
			continue
		}
		first, to := r, fold(r)
		step := rune(1)
		if fold(r+1) == r+1 {
			step = 2
		}
		for fold(r+step) != r+step && fold(r+step)-(r+step) == to-first {
			r += step
		}
		if r == first {
			step = 1
		}
		fmt.Printf("fold %x %x %x %x\n", first, r, step, to)
	}
}
