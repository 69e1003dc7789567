// Runs Hadoop's own YARN for a test: a resource manager and two node managers of one process, on 127.0.0.1 alone.
// The one argument is a folder; `conf` in it becomes what HADOOP_CONF_DIR names. A signal ends it.

import java.io.OutputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.yarn.conf.YarnConfiguration;
import org.apache.hadoop.yarn.server.MiniYARNCluster;

public final class YarnServer {
    private static final int NODES = 2;
    private static final int WAIT_MILLISECONDS = 120_000;

    private YarnServer() {}

    public static void main(String[] given) throws Exception {
        Path conf = Files.createDirectories(Path.of(given[0], "conf"));
        MiniYARNCluster cluster = new MiniYARNCluster("foldhouse", NODES, 1, 1);
        cluster.init(settings());
        Runtime.getRuntime().addShutdownHook(new Thread(cluster::stop));
        cluster.start();
        if (!cluster.waitForNodeManagersToConnect(WAIT_MILLISECONDS)) {
            throw new IllegalStateException("no node manager connected");
        }
        write(cluster.getConfig(), conf.resolve("yarn-site.xml"));
        Configuration core = new Configuration(false);
        core.set("fs.defaultFS", "file:///");
        write(core, conf.resolve("core-site.xml"));
        System.out.println("YARN is ready");
        Thread.currentThread().join();
    }

    private static Configuration settings() {
        Configuration conf = new YarnConfiguration();
        conf.set("fs.defaultFS", "file:///");
        conf.set("yarn.scheduler.capacity.root.queues", "default");
        conf.set("yarn.scheduler.capacity.root.default.capacity", "100");
        conf.set("yarn.scheduler.capacity.maximum-am-resource-percent", "1");
        conf.setInt("yarn.scheduler.minimum-allocation-mb", 256);
        conf.setInt("yarn.nodemanager.resource.memory-mb", 3072);
        conf.setInt("yarn.nodemanager.resource.cpu-vcores", 4);
        // A test is judged by its rows; how full the machine's disk and memory are is not its business.
        conf.setBoolean("yarn.nodemanager.disk-health-checker.enable", false);
        conf.setBoolean("yarn.nodemanager.pmem-check-enabled", false);
        conf.setBoolean("yarn.nodemanager.vmem-check-enabled", false);
        return conf;
    }

    private static void write(Configuration conf, Path file) throws Exception {
        try (OutputStream out = Files.newOutputStream(file)) {
            conf.writeXml(out);
        }
    }
}
