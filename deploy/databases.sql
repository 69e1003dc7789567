-- Run once, when the volume of Postgres is empty.
CREATE DATABASE dagster;
CREATE DATABASE lake;
