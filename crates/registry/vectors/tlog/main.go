// Prints what golang.org/x/mod/sumdb/tlog computes for logs of 0 to 5,000 records, as digests over blocks of sizes.
//
// Run it in the folder above: go run ./tlog > tlog.txt
package main

import (
	"crypto/sha256"
	"fmt"
	"hash"

	"golang.org/x/mod/sumdb/tlog"
)

const (
	sizes  = 5000
	block  = 250
	full   = 130 // Below this size every proof is made, above it a selection.
	chosen = 3
)

type store []tlog.Hash

func (s *store) ReadHashes(indexes []int64) ([]tlog.Hash, error) {
	var hashes []tlog.Hash
	for _, index := range indexes {
		hashes = append(hashes, (*s)[index])
	}
	return hashes, nil
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func add(h hash.Hash, hashes []tlog.Hash) {
	fmt.Fprintf(h, "%d:", len(hashes))
	for _, one := range hashes {
		h.Write(one[:])
	}
}

// numbers returns the numbers below size for which proofs are made.
func numbers(size int64) []int64 {
	var list []int64
	if size <= full {
		for n := int64(0); n < size; n++ {
			list = append(list, n)
		}
		return list
	}
	for k := int64(0); k < chosen; k++ {
		list = append(list, (size*31+k*977)%size)
	}
	return append(list, 0, size/2, size-1)
}

func main() {
	fmt.Println("# Made by `go run ./tlog > tlog.txt` in this folder. Each line is a kind and the SHA-256 over a block of sizes.")
	var log store
	kinds := []string{"stored", "tree", "record", "prefix", "tiles8", "tiles2", "index"}
	digests := map[string]hash.Hash{}
	for _, kind := range kinds {
		digests[kind] = sha256.New()
	}
	for size := int64(0); size <= sizes; size++ {
		if size > 0 {
			n := size - 1
			hashes := must(tlog.StoredHashes(n, fmt.Appendf(nil, "record %d\n", n), &log))
			log = append(log, hashes...)
			add(digests["stored"], hashes)
		}
		add(digests["tree"], []tlog.Hash{must(tlog.TreeHash(size, &log))})
		for _, n := range numbers(size) {
			add(digests["record"], must(tlog.ProveRecord(size, n, &log)))
			add(digests["prefix"], must(tlog.ProveTree(size, n+1, &log)))
		}
		for _, height := range []int{8, 2} {
			h := digests[fmt.Sprintf("tiles%d", height)]
			for _, tile := range tlog.NewTiles(height, max(size-1, 0), size) {
				fmt.Fprintf(h, "%s\n", tile.Path())
				h.Write(must(tlog.ReadTileData(tile, &log)))
			}
			// A jump from an earlier size has several full tiles.
			for _, tile := range tlog.NewTiles(height, size/2, size) {
				fmt.Fprintf(h, "%s\n", tile.Path())
			}
		}
		level, n := tlog.SplitStoredHashIndex(size * 3)
		count := tlog.StoredHashCount(size)
		fmt.Fprintf(digests["index"], "%d %d %d %s\n", level, n, count, tlog.TileForIndex(8, size*3).Path())
		if size%block == 0 {
			for _, kind := range kinds {
				fmt.Printf("%s %d %x\n", kind, size, digests[kind].Sum(nil))
				digests[kind].Reset()
			}
		}
	}
	for _, path := range paths {
		tile, err := tlog.ParseTilePath(path)
		if err != nil {
			fmt.Printf("path %q refused\n", path)
			continue
		}
		fmt.Printf("path %q %d %d %d %d\n", path, tile.H, tile.L, tile.N, tile.W)
	}
}

var paths = []string{
	"tile/4/0/001",
	"tile/4/0/001.p/5",
	"tile/3/5/x123/x456/078",
	"tile/3/5/x123/x456/078.p/2",
	"tile/1/0/x003/x057/500",
	"tile/3/5/123/456/078",
	"tile/3/-1/123/456/078",
	"tile/1/data/x003/x057/500",
	"tile/8/data/000.p/256",
	"tile/8/data/000.p/255",
	"tile/8/0/000",
	"tile/8/0/000.p/0",
	"tile/8/0/000.p/+1",
	"tile/8/0/000.p/01",
	"tile/8/0/x000/000",
	"tile/8/0/0000",
	"tile/8/0/00",
	"tile/8/0/x001",
	"tile/8/0/001/002",
	"tile/8/0/xx01/002",
	"tile/8/0/",
	"tile/8/0",
	"tile/08/0/000",
	"tile/8/00/000",
	"tile/0/0/000",
	"tile/30/0/000",
	"tile/31/0/000",
	"tile/8/63/000",
	"tile/8/0/x009/x223/x372/x036/x854/x775/807",
	"tile/8/0/x009/x223/x372/x036/x854/x775/808",
	"tile/8/0/x018/x446/x744/x073/x709/x551/616",
	"tile/8/0/001.p/5/6",
	"tile/8/0/001.p",
	"tile/8/0/001.p.p/5",
	"/tile/8/0/001",
	"tile/8/0/001/",
	"",
}
