import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.HashMap;
import java.util.Map;
import org.apache.iceberg.CatalogUtil;
import org.apache.iceberg.rest.RESTCatalogAdapter;
import org.apache.iceberg.rest.RESTCatalogServlet;
import org.eclipse.jetty.ee10.servlet.ServletContextHandler;
import org.eclipse.jetty.ee10.servlet.ServletHolder;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.server.ServerConnector;

/**
 * Iceberg's own REST catalog for tests, on 127.0.0.1 only; the stock main listens on all addresses.
 *
 * <p>Arguments are properties of its JDBC catalog, as name=value. It prints its port, and ends when its input ends, so
 * that it never outlives the process that started it.
 */
public class RestServer {
  public static void main(String[] arguments) throws Exception {
    Map<String, String> properties = new HashMap<>();
    properties.put("catalog-impl", "org.apache.iceberg.jdbc.JdbcCatalog");
    properties.put("jdbc.schema-version", "V1");
    for (String argument : arguments) {
      String[] parts = argument.split("=", 2);
      properties.put(parts[0], parts[1]);
    }
    RESTCatalogAdapter adapter =
        new RESTCatalogAdapter(CatalogUtil.buildIcebergCatalog("rest", properties, new org.apache.hadoop.conf.Configuration()));
    ServletContextHandler context = new ServletContextHandler(ServletContextHandler.NO_SESSIONS);
    context.addServlet(new ServletHolder(new RESTCatalogServlet(adapter)), "/*");
    Server server = new Server();
    ServerConnector connector = new ServerConnector(server);
    connector.setHost("127.0.0.1");
    connector.setPort(0);
    server.addConnector(connector);
    server.setHandler(context);
    server.start();
    System.out.println("port " + connector.getLocalPort());
    System.out.flush();
    BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
    while (input.readLine() != null) {}
    System.exit(0);
  }
}
