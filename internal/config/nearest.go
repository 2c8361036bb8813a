package config

import "strings"

// nearest returns the candidate that a misspelt word most probably stands for; empty: none is close.
func nearest(word string, candidates []string) string {
	best, least := "", 1+len(word)/3
	for _, c := range candidates {
		if strings.HasPrefix(c, word+"_") { // password → password_file
			return c
		}
		if d := distance(word, c); d <= least {
			best, least = c, d-1
		}
	}
	return best
}

// distance is the number of letters to insert, delete or replace to turn a into b (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replace := diagonal
			if a[i] != b[j] {
				replace++
			}
			diagonal = row[j+1]
			row[j+1] = min(replace, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
