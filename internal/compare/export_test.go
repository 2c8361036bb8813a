package compare

import (
	"strings"
	"testing"

	"mirrord/internal/kafka"
	"mirrord/internal/recordbatch"
)

func TestExportWritesWhatAConsumerGets(t *testing.T) {
	l := newLog().write(2, 1, "v").txn(5, 1, "aborted").done(5, false)
	l.append(
		recordbatch.Record{Offset: 4, Timestamp: 7},
		recordbatch.Record{Offset: 5, Timestamp: 8, Key: []byte{0xff}, Value: []byte{}, Headers: []recordbatch.Header{
			{Key: []byte("h"), Value: nil}, {Key: []byte("b"), Value: []byte{0xc0}},
		}},
		recordbatch.Record{Offset: 6, Timestamp: 9, Key: []byte("<&>"), Value: []byte("é")},
	).write(3, 3, "beyond")
	f := &fake{logs: map[string]*fakeLog{"t-0": l}}
	var out strings.Builder
	n, err := export(t.Context(), f, kafka.Codec, kafka.TP{Topic: "t"}, [2]int64{1, 7}, &out)
	want := `{"offset":1,"timestamp":1700000000001,"key":"k1","value":"v","headers":[]}
{"offset":4,"timestamp":7,"key":null,"value":null,"headers":[]}
{"offset":5,"timestamp":8,"keyBase64":"/w==","value":"","headers":[{"key":"h","value":null},{"key":"b","valueBase64":"wA=="}]}
{"offset":6,"timestamp":9,"key":"<&>","value":"é","headers":[]}
`
	if err != nil || n != 4 || out.String() != want {
		t.Errorf("%d records, %v:\n%s", n, err, out.String())
	}
	out.Reset()
	if n, err := export(t.Context(), f, kafka.Codec, kafka.TP{Topic: "t"}, [2]int64{7, -1}, &out); n != 3 || err != nil {
		t.Errorf("to the end: %d records, %v", n, err)
	}
	if _, err := export(t.Context(), f, kafka.Codec, kafka.TP{Topic: "absent"}, [2]int64{0, -1}, &out); err == nil {
		t.Error("an absent topic was exported")
	}
}
