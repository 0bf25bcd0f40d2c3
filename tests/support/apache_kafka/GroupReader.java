import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Apache Kafka's own consumer in a group: prints the values of so many records, commits, and then
 * prints what the group committed. Arguments: address, topic, group, count.
 */
class GroupReader {
    public static void main(String[] arguments) throws Exception {
        ByteArrayDeserializer bytes = new ByteArrayDeserializer();
        Map<String, Object> settings = Map.of(
            "bootstrap.servers", arguments[0],
            "group.id", arguments[2],
            "auto.offset.reset", "earliest",
            "enable.auto.commit", "false");
        int left = Integer.parseInt(arguments[3]);
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", arguments[0]))) {
            try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings, bytes, bytes)) {
                consumer.subscribe(List.of(arguments[1]));
                long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(30);
                while (left > 0 && System.nanoTime() < deadline) {
                    for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofSeconds(1))) {
                        System.out.println(new String(record.value(), StandardCharsets.UTF_8));
                        left--;
                    }
                }
                consumer.commitSync();
                ConsumerGroupDescription group = admin.describeConsumerGroups(List.of(arguments[2]))
                    .all().get(20, TimeUnit.SECONDS).get(arguments[2]);
                System.out.println("group " + group.state() + " members " + group.members().size());
            }
            admin.listConsumerGroupOffsets(arguments[2]).partitionsToOffsetAndMetadata()
                .get(20, TimeUnit.SECONDS)
                .forEach((where, offset) -> System.out.println("committed " + where + " " + offset.offset()));
        }
    }
}
