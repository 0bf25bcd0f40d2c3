// A client of franz-go: "produce BOOTSTRAP TOPIC COUNT CODEC" or "consume BOOTSTRAP TOPIC COUNT GROUP".
//
// It produces the numbers below COUNT, over three partitions, with a key and a header each; or it
// consumes COUNT records in a group, commits, and prints "partition offset key value header" of each.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const partitions = 3

var codecs = map[string]kgo.CompressionCodec{
	"none":   kgo.NoCompression(),
	"gzip":   kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(),
	"lz4":    kgo.Lz4Compression(),
	"zstd":   kgo.ZstdCompression(),
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func produce(ctx context.Context, bootstrap, topic string, count int, codec string) {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(bootstrap),
		kgo.DefaultProduceTopic(topic),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchCompression(codecs[codec]),
	)
	check(err)
	defer client.Close()
	records := make([]*kgo.Record, count)
	for number := range records {
		text := []byte(strconv.Itoa(number))
		records[number] = &kgo.Record{
			Partition: int32(number % partitions),
			Key:       text,
			Value:     text,
			Headers:   []kgo.RecordHeader{{Key: "codec", Value: []byte(codec)}},
		}
	}
	check(client.ProduceSync(ctx, records...).FirstErr())
}

func consume(ctx context.Context, bootstrap, topic string, count int, group string) {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(bootstrap),
		kgo.ConsumeTopics(topic),
		kgo.ConsumerGroup(group),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
	)
	check(err)
	defer client.Close()
	for found := 0; found < count; {
		fetches := client.PollRecords(ctx, count-found)
		check(fetches.Err())
		fetches.EachRecord(func(r *kgo.Record) {
			header := "-"
			if len(r.Headers) > 0 {
				header = string(r.Headers[0].Value)
			}
			fmt.Printf("%d %d %q %s %s\n", r.Partition, r.Offset, r.Key, r.Value, header)
			found++
		})
	}
	check(client.CommitUncommittedOffsets(ctx))
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	count, err := strconv.Atoi(os.Args[4])
	check(err)
	if os.Args[1] == "produce" {
		produce(ctx, os.Args[2], os.Args[3], count, os.Args[5])
	} else {
		consume(ctx, os.Args[2], os.Args[3], count, os.Args[5])
	}
}
