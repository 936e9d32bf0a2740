package tracking

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"example.org/daisy/geom"
)

// groupJSON is the group's zarr.json, byte for byte as daisy 2.0.0 writes it.
func groupJSON(hash string) []byte {
	return indent(struct {
		Attributes map[string]string `json:"attributes"`
		NodeType   string            `json:"node_type"`
		Format     int               `json:"zarr_format"`
	}{map[string]string{hashAttribute: hash}, "group", 3})
}

const hashAttribute = "daisy_task_hash"

// arrayJSON is an array's zarr.json, byte for byte as daisy 2.0.0 writes it: keys sorted.
func arrayJSON(shape geom.Coordinate, dataType string) []byte {
	type named struct {
		Configuration any    `json:"configuration"`
		Name          string `json:"name"`
	}
	return indent(struct {
		Attributes       struct{}        `json:"attributes"`
		ChunkGrid        named           `json:"chunk_grid"`
		ChunkKeyEncoding named           `json:"chunk_key_encoding"`
		Codecs           []named         `json:"codecs"`
		DataType         string          `json:"data_type"`
		FillValue        json.RawMessage `json:"fill_value"`
		NodeType         string          `json:"node_type"`
		Shape            []int64         `json:"shape"`
		Transformers     []string        `json:"storage_transformers"`
		Format           int             `json:"zarr_format"`
	}{
		ChunkGrid:        named{map[string]any{"chunk_shape": shape.Slice()}, "regular"},
		ChunkKeyEncoding: named{map[string]any{"separator": "/"}, "default"},
		Codecs:           []named{{map[string]any{"endian": "little"}, "bytes"}},
		DataType:         dataType,
		FillValue:        json.RawMessage(zeros(dataType)[0]),
		NodeType:         "array",
		Shape:            shape.Slice(),
		Transformers:     []string{},
		Format:           3,
	})
}

// zeros are the ways to write a fill value of zero: first that of daisy.
func zeros(dataType string) []string {
	if dataType == "float32" {
		return []string{"0.0", "0"}
	}
	return []string{"0"}
}

func indent(v any) []byte {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		panic("tracking: " + err.Error()) // the values above always encode
	}
	return append(data, '\n')
}

// root is what the zarr.json of a task's folder says.
type root struct {
	hash string
	// isArray: it is one array of done marks, as daisy wrote before 2.0.0, and no group. The rest of its metadata is not checked yet.
	isArray bool
}

// parseRoot reads the zarr.json of a task's folder. The error says what is wrong with it.
func parseRoot(data []byte) (r root, err error) {
	var meta struct {
		Attributes map[string]json.RawMessage `json:"attributes"`
		NodeType   string                     `json:"node_type"`
		Format     json.RawMessage            `json:"zarr_format"`
	}
	if json.Unmarshal(data, &meta) == nil && meta.NodeType == "array" && meta.Attributes[hashAttribute] != nil {
		r.isArray = true
	} else if err := parseStrictly(data, &meta, "attributes", "node_type", "zarr_format"); err != nil {
		return root{}, err
	} else if err := checkNode(meta.Format, meta.NodeType, "group"); err != nil {
		return root{}, err
	}
	raw, ok := meta.Attributes[hashAttribute]
	if !ok {
		return root{}, fmt.Errorf("it has no attribute %s, so nobody knows for which blocks its marks are", hashAttribute)
	}
	if json.Unmarshal(raw, &r.hash) != nil || r.hash == "" {
		return root{}, fmt.Errorf("its attribute %s is %s, not a hash", hashAttribute, raw)
	}
	return r, nil
}

// checkArray checks that an array's zarr.json says exactly what the package
// comment says; the order of keys and other attributes do not matter. The error says what is wrong.
func checkArray(data []byte, shape geom.Coordinate, dataType string) error {
	type named struct {
		Name          string                     `json:"name"`
		Configuration map[string]json.RawMessage `json:"configuration"`
	}
	var meta struct {
		ChunkGrid        named             `json:"chunk_grid"`
		ChunkKeyEncoding named             `json:"chunk_key_encoding"`
		Codecs           []json.RawMessage `json:"codecs"`
		DataType         json.RawMessage   `json:"data_type"`
		FillValue        json.RawMessage   `json:"fill_value"`
		NodeType         string            `json:"node_type"`
		Shape            []int64           `json:"shape"`
		Transformers     []json.RawMessage `json:"storage_transformers"`
		Format           json.RawMessage   `json:"zarr_format"`
	}
	err := parseStrictly(data, &meta, "attributes", "chunk_grid", "chunk_key_encoding", "codecs", "data_type", "fill_value",
		"node_type", "shape", "storage_transformers", "zarr_format", "dimension_names")
	if err != nil {
		return err
	}
	if err := checkNode(meta.Format, meta.NodeType, "array"); err != nil {
		return err
	}
	if got := fmt.Sprint(meta.Shape); got != fmt.Sprint(shape.Slice()) {
		return fmt.Errorf("its shape is %s, and the task needs %v", got, shape.Slice())
	}
	if got := string(meta.DataType); got != `"`+dataType+`"` {
		return fmt.Errorf("its data type is %s, and %q is needed", or(got, "missing"), dataType)
	}
	if got := string(meta.FillValue); !slices.Contains(zeros(dataType), got) {
		return fmt.Errorf("its fill value is %s, and 0 is needed", or(got, "missing"))
	}
	var chunk []int64
	if meta.ChunkGrid.Name != "regular" || json.Unmarshal(meta.ChunkGrid.Configuration["chunk_shape"], &chunk) != nil {
		return fmt.Errorf("its chunk grid is not a regular one")
	}
	if got := fmt.Sprint(chunk); got != fmt.Sprint(shape.Slice()) {
		return fmt.Errorf("its chunks have the shape %s, and one chunk of %v is needed", got, shape.Slice())
	}
	if s := meta.ChunkKeyEncoding.Configuration["separator"]; meta.ChunkKeyEncoding.Name != "default" || s != nil && string(s) != `"/"` {
		return fmt.Errorf("its chunk keys are not of the form c/0/0")
	}
	if len(meta.Transformers) > 0 {
		return fmt.Errorf("it has storage transformers")
	}
	if len(meta.Codecs) != 1 {
		return fmt.Errorf("it has %d codecs %s, and only the codec \"bytes\" is read", len(meta.Codecs), bytes.Join(rawBytes(meta.Codecs), []byte(", ")))
	}
	var codec named
	if json.Unmarshal(meta.Codecs[0], &codec) != nil { // Zarr allows a bare name for a codec without configuration
		codec = named{}
		if json.Unmarshal(meta.Codecs[0], &codec.Name) != nil {
			return fmt.Errorf("its codec %s cannot be read", meta.Codecs[0])
		}
	}
	endian := string(codec.Configuration["endian"])
	if codec.Name != "bytes" || endian != `"little"` && (endian != "" || dataType != "uint8") {
		return fmt.Errorf("its codec is %s, and only \"bytes\", little endian, is read", meta.Codecs[0])
	}
	return nil
}

func rawBytes(raws []json.RawMessage) [][]byte {
	out := make([][]byte, len(raws))
	for i, r := range raws {
		var b bytes.Buffer
		if json.Compact(&b, r) != nil {
			b.Write(r)
		}
		out[i] = b.Bytes()
	}
	return out
}

func checkNode(format json.RawMessage, nodeType, want string) error {
	if string(format) != "3" {
		return fmt.Errorf("its zarr_format is %s, and 3 is needed", or(string(format), "missing"))
	}
	if nodeType != want {
		return fmt.Errorf("its node_type is %q, and %q is needed", nodeType, want)
	}
	return nil
}

// parseStrictly decodes one JSON object. Keys beyond those known are refused,
// as Zarr v3 demands, unless they say "must_understand": false or are null; a key that
// stands twice, and a known one in other letters, are refused too, because readers differ in which they believe.
func parseStrictly(data []byte, into any, known ...string) error {
	keys, err := objectKeys(data)
	if err != nil {
		return fmt.Errorf("it is not a JSON object: %w", err)
	}
	seen := map[string]bool{}
	for _, key := range keys {
		folded := strings.ToLower(key)
		if seen[folded] {
			return fmt.Errorf("it has the key %q twice", key)
		}
		seen[folded] = true
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(data, &all); err != nil {
		return fmt.Errorf("it is not a JSON object: %w", err)
	}
	for _, key := range known {
		if seen[key] && all[key] == nil {
			return fmt.Errorf("it has the key %q in other letters", key)
		}
		delete(all, key)
	}
	for key, value := range all {
		var extension struct {
			MustUnderstand *bool `json:"must_understand"`
		}
		if string(value) == "null" || json.Unmarshal(value, &extension) == nil && extension.MustUnderstand != nil && !*extension.MustUnderstand {
			continue
		}
		return fmt.Errorf("it has the unknown key %q", key)
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("it has a value of the wrong kind: %w", err)
	}
	return nil
}

// objectKeys gives the keys of the object that data holds, as they stand.
func objectKeys(data []byte) ([]string, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	if t, err := d.Token(); err != nil {
		return nil, err
	} else if t != json.Delim('{') {
		return nil, fmt.Errorf("it begins with %v", t)
	}
	var keys []string
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return nil, err
		}
		key, _ := t.(string)
		keys = append(keys, key)
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil, err
		}
	}
	return keys, nil
}

func or(text, empty string) string {
	if text == "" {
		return empty
	}
	return text
}
