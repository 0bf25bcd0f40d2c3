import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.Random;
import java.util.StringJoiner;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * The turn of Apache Kafka's own client: see turn.py.
 * Arguments: address, topic, bytes of a value, seconds to warm up, seconds, parts, keys.
 */
class Endurance {
    static final int SLICE = 1000;
    static final AtomicLong failed = new AtomicLong();
    static KafkaProducer<byte[], byte[]> producer;
    static String topic;
    static byte[][] values;
    static byte[][] keys;

    public static void main(String[] arguments) throws IOException {
        topic = arguments[1];
        values = letters(Integer.parseInt(arguments[2]));
        double warmUp = Double.parseDouble(arguments[3]);
        double seconds = Double.parseDouble(arguments[4]);
        int parts = Integer.parseInt(arguments[5]);
        keys = new byte[Integer.parseInt(arguments[6])][];
        for (int number = 0; number < keys.length; number++) {
            keys[number] = ("key-" + number).getBytes(StandardCharsets.US_ASCII);
        }
        ByteArraySerializer bytes = new ByteArraySerializer();
        Map<String, Object> settings = Map.of("bootstrap.servers", arguments[0]);
        try (KafkaProducer<byte[], byte[]> made = new KafkaProducer<>(settings, bytes, bytes)) {
            producer = made;
            long sent = send(warmUp, new StringJoiner(""));
            producer.flush();
            StringJoiner told = new StringJoiner(", ", "[", "]");
            for (int part = 0; part < parts; part++) {
                sent += send(seconds / parts, told);
            }
            producer.flush();
            if (failed.get() > 0) {
                throw new IllegalStateException(failed + " records failed");
            }
            System.out.println("{\"parts\": " + told + ", \"sent\": " + sent + "}");
        }
    }

    static long send(double seconds, StringJoiner told) throws IOException {
        long records = 0;
        long requests = requests();
        long cpu = cpuNanos();
        long started = System.nanoTime();
        double taken;
        do {
            for (int number = 0; number < SLICE; number++, records++) {
                byte[] value = values[(int) (records % values.length)];
                byte[] key = keys[(int) (records % keys.length)];
                producer.send(new ProducerRecord<>(topic, key, value), (metadata, error) -> {
                    if (error != null) {
                        failed.incrementAndGet();
                    }
                });
            }
            taken = (System.nanoTime() - started) / 1e9;
        } while (taken < seconds);
        told.add("{\"records\": " + records + ", \"seconds\": " + taken
                + ", \"cpu_seconds\": " + (cpuNanos() - cpu) / 1e9
                + ", \"requests\": " + (requests() - requests)
                + ", \"rss_bytes\": " + residentBytes() + "}");
        return records;
    }

    static long requests() {
        return producer.metrics().entrySet().stream()
                .filter(one -> one.getKey().name().equals("request-total")
                        && one.getKey().group().equals("producer-metrics"))
                .mapToLong(one -> ((Double) one.getValue().metricValue()).longValue())
                .sum();
    }

    static byte[][] letters(int size) {
        Random random = new Random(2013);
        byte[][] made = new byte[997][size];
        for (byte[] value : made) {
            for (int at = 0; at < size; at++) {
                value[at] = (byte) ('A' + random.nextInt(26));
            }
        }
        return made;
    }

    static long residentBytes() throws IOException {
        return Files.lines(Path.of("/proc/self/status"))
                .filter(line -> line.startsWith("VmRSS:"))
                .mapToLong(line -> 1024 * Long.parseLong(line.replaceAll("[^0-9]", "")))
                .findFirst().orElse(0);
    }

    static long cpuNanos() {
        var system = (com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        return system.getProcessCpuTime();
    }
}
