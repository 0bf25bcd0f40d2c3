// A broker's plugin for the metrics of clients (KIP-714): writes each push to a file of its own.

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.metrics.KafkaMetric;
import org.apache.kafka.common.metrics.MetricsReporter;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.telemetry.ClientTelemetry;
import org.apache.kafka.server.telemetry.ClientTelemetryPayload;
import org.apache.kafka.server.telemetry.ClientTelemetryReceiver;

@SuppressWarnings("deprecation")
public class TelemetrySink implements MetricsReporter, ClientTelemetry, ClientTelemetryReceiver {
    private static final Path FOLDER = Path.of(System.getProperty("telemetry.folder"));
    private static final AtomicInteger COUNT = new AtomicInteger();

    @Override
    public ClientTelemetryReceiver clientReceiver() {
        return this;
    }

    // The name says in which order, by whom, and whether it was the last.
    @Override
    public void exportMetrics(AuthorizableRequestContext context, ClientTelemetryPayload payload) {
        Uuid id = payload.clientInstanceId();
        String name =
                String.format(
                        "%04d-%016x%016x-%b",
                        COUNT.incrementAndGet(),
                        id.getMostSignificantBits(),
                        id.getLeastSignificantBits(),
                        payload.isTerminating());
        ByteBuffer data = payload.data();
        byte[] metrics = new byte[data.remaining()];
        data.get(metrics);
        try {
            Path unfinished = Files.write(FOLDER.resolve(name + ".tmp"), metrics);
            Path finished = FOLDER.resolve(name + ".metrics");
            Files.move(unfinished, finished, StandardCopyOption.ATOMIC_MOVE);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    @Override
    public void configure(Map<String, ?> configs) {}

    @Override
    public void init(List<KafkaMetric> metrics) {}

    @Override
    public void metricChange(KafkaMetric metric) {}

    @Override
    public void metricRemoval(KafkaMetric metric) {}

    @Override
    public void close() {}
}
