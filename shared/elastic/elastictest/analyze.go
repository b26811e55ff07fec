package elastictest

import (
	"slices"
	"unicode"
	"unicode/utf8"
)

// analyze splits a text into words as Elasticsearch's standard analyzer does: Unicode word boundaries (UAX #29), then
// lower case. Each Chinese character and each Hiragana sign is a word; so is an emoji. Compared with the real one on
// random text it agrees for Latin, Greek, Cyrillic, Arabic, Devanagari, Hangul, Chinese and Japanese words; it differs in
// digits next to Thai letters, in rare marks of Hebrew and Japanese, and in pictures that are not in emoji below.
func analyze(text string) []string {
	var words []string
	var word []rune
	flush := func() {
		if slices.ContainsFunc(word, carriesWord) { // underscores alone are none
			for len(word) > maxToken {
				words, word = append(words, string(word[:maxToken])), word[maxToken:]
			}
			words = append(words, string(word))
		}
		word = nil
	}
	runes := []rune(text)
	for n := 0; n < len(runes); n++ {
		r := runes[n]
		class := classOf(r)
		prev := other
		if len(word) > 0 {
			prev = lastClass(word)
		}
		switch {
		case class == extend && len(word) > 0:
			// an accent or a joiner belongs to what it follows
		case class == single && emoji(r) && len(word) > 0 && word[len(word)-1] == zeroWidthJoiner:
			// one picture made of several
		case class == single:
			flush()
		case class == other || class == extend:
			flush()
			continue
		case class == midLetter || class == midNumber || class == midBoth:
			// inside a word only: 3.14, 1,000, don't, example.com
			next := classAfter(runes[n+1:])
			letters := prev == letter && next == letter && class != midNumber
			digits := prev == digit && next == digit && class != midLetter
			if !letters && !digits {
				flush()
				continue
			}
		case !joins(prev, class):
			flush()
		}
		word = append(word, unicode.ToLower(r))
	}
	flush()
	return words
}

const (
	maxToken        = 255
	zeroWidthJoiner = '\u200d'
)

type class int

const (
	other class = iota
	letter
	digit
	katakana
	connector // the underscore and its like
	single    // a word by itself
	extend
	midLetter
	midNumber
	midBoth
)

func classOf(r rune) class {
	switch r {
	case ':', '·', '\u0387', '\u055f', '\u05f4', '\u2027', '\ufe13', '\ufe55', '\uff1a':
		return midLetter
	case ',', ';', '\u037e', '\u0589', '\u060c', '\u060d', '\u066c', '\u07f8', '\u2044', '\ufe10', '\ufe14', '\ufe50', '\ufe54', '\uff0c', '\uff1b':
		return midNumber
	case '.', '\'', '\u2018', '\u2019', '\u2024', '\ufe52', '\uff07', '\uff0e':
		return midBoth
	case '\u30fc': // the Katakana prolonged sound mark is a letter of no script
		return katakana
	}
	if r < utf8.RuneSelf { // the tables below take their time
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z':
			return letter
		case '0' <= r && r <= '9':
			return digit
		case r == '_':
			return connector
		}
		return other
	}
	switch {
	case unicode.Is(unicode.Pc, r), r == '\u202f':
		return connector
	case unicode.In(r, unicode.Mn, unicode.Me, unicode.Mc, unicode.Cf) && r != '\u200b', r >= 0x1f3fb && r <= 0x1f3ff:
		return extend
	case unicode.In(r, unicode.Han, unicode.Hiragana), emoji(r):
		return single
	case unicode.Is(unicode.Katakana, r):
		return katakana
	case unicode.Is(unicode.Nd, r):
		return digit
	case unicode.IsLetter(r), unicode.Is(unicode.Nl, r):
		return letter
	}
	return other
}

func emoji(r rune) bool {
	return r == '©' || r == '®' || r == '™' || r >= 0x1f300 && r <= 0x1faff || r >= 0x2600 && r <= 0x27bf && unicode.Is(unicode.So, r)
}

// lastClass looks past accents, and past a point or comma: one that stands in a word has been found to join.
func lastClass(word []rune) class {
	for _, r := range slices.Backward(word) {
		switch c := classOf(r); c {
		case extend, midLetter, midNumber, midBoth:
		default:
			return c
		}
	}
	return other
}

func classAfter(rest []rune) class {
	for _, r := range rest {
		if c := classOf(r); c != extend {
			return c
		}
	}
	return other
}

// joins says whether there is no boundary between two neighbours.
func joins(prev, next class) bool {
	alnum := func(c class) bool { return c == letter || c == digit }
	switch {
	case prev == connector || next == connector:
		return prev != single && next != single && prev != other
	case prev == katakana || next == katakana:
		return prev == next
	}
	return alnum(prev) && alnum(next)
}

func carriesWord(r rune) bool {
	switch classOf(r) {
	case letter, digit, katakana, single:
		return true
	}
	return false
}
