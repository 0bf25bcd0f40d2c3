import java.lang.management.ManagementFactory;
import java.util.Arrays;
import java.util.Map;
import java.util.Random;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * The turn of Apache Kafka's own client: see turn.py.
 * Arguments: address, topic, transactions to warm up, transactions, records of each, their bytes.
 */
class Transactions {
    static KafkaProducer<byte[], byte[]> producer;
    static String topic;
    static byte[][] values;

    public static void main(String[] arguments) {
        topic = arguments[1];
        int warmUp = Integer.parseInt(arguments[2]);
        int transactions = Integer.parseInt(arguments[3]);
        values = letters(Integer.parseInt(arguments[4]), Integer.parseInt(arguments[5]));
        Map<String, Object> settings =
                Map.of("bootstrap.servers", arguments[0], "transactional.id", topic);
        ByteArraySerializer bytes = new ByteArraySerializer();
        try (KafkaProducer<byte[], byte[]> made = new KafkaProducer<>(settings, bytes, bytes)) {
            producer = made;
            producer.initTransactions();
            transact(warmUp);
            long cpu = cpuNanos();
            long started = System.nanoTime();
            double[] commits = transact(transactions);
            double seconds = (System.nanoTime() - started) / 1e9;
            double cpuSeconds = (cpuNanos() - cpu) / 1e9;
            System.out.println("{\"seconds\": " + seconds + ", \"cpu_seconds\": " + cpuSeconds
                    + ", \"commits\": " + Arrays.toString(commits) + "}");
        }
    }

    static double[] transact(int times) {
        double[] commits = new double[times];
        for (int number = 0; number < times; number++) {
            producer.beginTransaction();
            for (byte[] value : values) {
                producer.send(new ProducerRecord<>(topic, value));
            }
            long asked = System.nanoTime();
            producer.commitTransaction();
            commits[number] = (System.nanoTime() - asked) / 1e9;
        }
        return commits;
    }

    static byte[][] letters(int count, int size) {
        Random random = new Random(2013);
        byte[][] made = new byte[count][size];
        for (byte[] value : made) {
            for (int at = 0; at < size; at++) {
                value[at] = (byte) ('A' + random.nextInt(26));
            }
        }
        return made;
    }

    static long cpuNanos() {
        var system = (com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        return system.getProcessCpuTime();
    }
}
