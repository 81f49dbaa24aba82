declare const process: any;
process.exit(1);
