import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Apache Kafka's own clients: sends records in each codec and consumes them. Arguments: address, topic, count. */
class RoundTrip {
    public static void main(String[] arguments) throws Exception {
        int count = Integer.parseInt(arguments[2]);
        String[] codecs = {"none", "gzip", "snappy", "lz4", "zstd"};
        for (String codec : codecs) {
            send(arguments[0], arguments[1], count, codec);
        }
        System.out.println("consumed " + consume(arguments[0], arguments[1], count * codecs.length));
    }

    static void send(String address, String topic, int count, String codec) throws Exception {
        Map<String, Object> settings = Map.of("bootstrap.servers", address, "compression.type", codec);
        ByteArraySerializer bytes = new ByteArraySerializer();
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings, bytes, bytes)) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (int n = 0; n < count; n++) {
                byte[] value = (codec + " " + n).getBytes(StandardCharsets.UTF_8);
                sent.add(producer.send(new ProducerRecord<>(topic, value, value)));
            }
            for (Future<RecordMetadata> one : sent) {
                one.get(20, TimeUnit.SECONDS);
            }
        }
    }

    static int consume(String address, String topic, int count) {
        ByteArrayDeserializer bytes = new ByteArrayDeserializer();
        Map<String, Object> settings = Map.of("bootstrap.servers", address, "auto.offset.reset", "earliest");
        int found = 0;
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings, bytes, bytes)) {
            List<TopicPartition> all = new ArrayList<>();
            consumer.partitionsFor(topic).forEach(p -> all.add(new TopicPartition(topic, p.partition())));
            consumer.assign(all);
            long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(20);
            while (found < count && System.nanoTime() < deadline) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofSeconds(1))) {
                    found += java.util.Arrays.equals(record.key(), record.value()) ? 1 : 0;
                }
            }
        }
        return found;
    }
}
