import fs from "node:fs";
export * from "express";
