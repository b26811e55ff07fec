package main

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// portPair are the API's and the operations' port, locally and on the host side of Compose.
type portPair struct{ http, ops int }

var hostPort = regexp.MustCompile(`:(\d{4,5})\b`)

// nextPorts is the first pair, 1000 apart as all are, that neither a service nor compose.yaml uses.
func nextPorts(services []service, compose string) (portPair, error) {
	used := map[int]bool{}
	for _, s := range services {
		for _, p := range s.Processes {
			used[p.HTTP], used[p.Ops] = true, true
		}
	}
	for _, m := range hostPort.FindAllStringSubmatch(compose, -1) {
		n, err := strconv.Atoi(m[1])
		if err != nil {
			return portPair{}, err
		}
		used[n] = true
	}
	for port := 8080; port < 9000; port++ {
		if !used[port] && !used[port+1000] {
			return portPair{port, port + 1000}, nil
		}
	}
	return portPair{}, errors.New("no pair of ports is free between 8080 and 9999")
}

// inWorkspace is go.work with one module more, in its place of the alphabet.
func inWorkspace(work, name string) (string, error) {
	module := "\t./services/" + name
	var lines []string
	inside, done := false, false
	for line := range strings.SplitSeq(work, "\n") {
		if inside && !done && (line == ")" || line > module) {
			lines, done = append(lines, module), true
		}
		if line == module {
			return "", fmt.Errorf("go.work has services/%s already", name)
		}
		inside = inside && line != ")" || line == "use ("
		lines = append(lines, line)
	}
	if !done {
		return "", errors.New(`go.work has no "use (" block`)
	}
	return strings.Join(lines, "\n"), nil
}

var (
	aboutPoints = regexp.MustCompile(`\bpoints\b|\bPOINTS_`)
	pointsBlock = regexp.MustCompile(`^  points(-migrate)?:$`)
	published   = regexp.MustCompile(`"127\.0\.0\.1:\d+:(8080|9080)"`)
)

// inCompose is compose.yaml with one service more: what stands there about points stands there once more, a block as a
// block, a line as a line, and in the two lists as one more item.
func inCompose(compose, name string, p portPair) (string, error) {
	if regexp.MustCompile(`(?m)^  ` + name + `(-migrate)?:|\bsecrets-` + name + `\b`).MatchString(compose) {
		return "", fmt.Errorf("deploy/compose/compose.yaml has a %s already", name)
	}
	words := strings.NewReplacer("points", name, "POINTS_", strings.ToUpper(name)+"_")
	once := func(text string) string {
		return published.ReplaceAllStringFunc(words.Replace(text), func(m string) string {
			if strings.HasSuffix(m, `:8080"`) {
				return fmt.Sprintf(`"127.0.0.1:%d:8080"`, p.http)
			}
			return fmt.Sprintf(`"127.0.0.1:%d:9080"`, p.ops)
		})
	}
	lines := strings.Split(compose, "\n")
	var out []string
	blocks, lists, single := 0, 0, 0
	for i := 0; i < len(lines); i++ {
		line := lines[i]
		out = append(out, line)
		switch {
		case !aboutPoints.MatchString(line) || strings.HasPrefix(strings.TrimSpace(line), "#"):
		case strings.HasPrefix(line, "  FACTS_URLS: "):
			out[len(out)-1] = line + fmt.Sprintf(",%[1]s=http://%[1]s:9080", name)
			lists++
		case strings.HasPrefix(line, `    command: ["topics", `):
			out[len(out)-1] = strings.TrimSuffix(line, "]") + fmt.Sprintf(`, %q]`, name)
			lists++
		case pointsBlock.MatchString(line):
			start := i
			for i+1 < len(lines) && lines[i+1] != "" {
				i++
			}
			block := lines[start : i+1]
			out = append(out, block[1:]...)
			out = append(out, "", once(strings.Join(block, "\n")))
			blocks++
		default:
			out = append(out, once(line))
			single++
		}
	}
	// Addresses, secrets' volume and mount, and the demo's dependency are single lines.
	if blocks != 2 || lists != 2 || single < 5 {
		return "", errors.New("deploy/compose/compose.yaml says other things about points than before: " +
			"tools/newservice/workspace.go does not fit it any more")
	}
	return strings.Join(out, "\n"), nil
}
