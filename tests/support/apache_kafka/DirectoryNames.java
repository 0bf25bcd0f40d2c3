import java.io.File;
import java.lang.reflect.Method;
import java.util.Arrays;

/** Prints topic and partition of directories by Apache Kafka's own parser. Arguments: its class, and the names. */
class DirectoryNames {
    public static void main(String[] arguments) throws Exception {
        Method parse = Class.forName(arguments[0]).getMethod("parseTopicPartitionName", File.class);
        for (String name : Arrays.copyOfRange(arguments, 1, arguments.length)) {
            System.out.println(parse.invoke(null, new File(name)));
        }
    }
}
