import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.HashMap;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.iceberg.CatalogUtil;
import org.apache.iceberg.rest.RESTCatalogAdapter;
import org.apache.iceberg.rest.RESTCatalogServlet;
import org.eclipse.jetty.ee10.servlet.ServletContextHandler;
import org.eclipse.jetty.ee10.servlet.ServletHolder;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.server.ServerConnector;

/**
 * Iceberg's own REST catalog for tests, on 127.0.0.1 only; its stock main listens on all addresses.
 *
 * <p>Each line of its input starts one catalog on a port of its own, or on `port`: properties of a JDBC catalog, as name=value with
 * spaces between them. The answer is a line with the port. It ends when its input ends, so that it never outlives the
 * process that started it.
 */
public class RestServer {
  public static void main(String[] arguments) throws Exception {
    BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
    for (String line = input.readLine(); line != null; line = input.readLine()) {
      System.out.println(started(line));
      System.out.flush();
    }
    System.exit(0);
  }

  private static int started(String line) throws Exception {
    Map<String, String> properties = new HashMap<>();
    properties.put("catalog-impl", "org.apache.iceberg.jdbc.JdbcCatalog");
    properties.put("jdbc.schema-version", "V1");
    for (String argument : line.trim().split(" ")) {
      String[] parts = argument.split("=", 2);
      properties.put(parts[0], parts[1]);
    }
    RESTCatalogAdapter adapter =
        new RESTCatalogAdapter(CatalogUtil.buildIcebergCatalog("rest", properties, new Configuration()));
    ServletContextHandler context = new ServletContextHandler(ServletContextHandler.NO_SESSIONS);
    context.addServlet(new ServletHolder(new RESTCatalogServlet(adapter)), "/*");
    Server server = new Server();
    ServerConnector connector = new ServerConnector(server, 1, 1);
    connector.setHost("127.0.0.1");
    connector.setPort(Integer.parseInt(properties.getOrDefault("port", "0")));
    server.addConnector(connector);
    server.setHandler(context);
    server.start();
    return connector.getLocalPort();
  }
}
